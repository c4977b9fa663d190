"""One module for each group of commands, imported only when one of them is used."""
