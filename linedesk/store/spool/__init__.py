"""The spool: a file in which documents wait while MongoDB does not confirm them."""
