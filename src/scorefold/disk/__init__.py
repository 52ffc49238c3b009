"""Files that are trusted only after they have been checked."""
