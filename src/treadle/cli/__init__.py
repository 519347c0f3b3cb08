"""The command line: thin commands over the driver, loaded one at a time."""
