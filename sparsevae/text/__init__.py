"""Text in and out: reading, words, vocabularies and widths; numpy only."""
