"""The commands: each checks its options, calls the library, and prints what came of it."""
