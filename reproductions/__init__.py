"""One file per published table or figure, or per bar we set ourselves, with its source beside it."""
