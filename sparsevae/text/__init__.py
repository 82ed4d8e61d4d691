"""Reading of texts, tokenizers, vocabularies and widths; numpy only."""
