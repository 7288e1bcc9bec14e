"""The live full-screen view of `stepwarden top`. Imported by that command alone."""
