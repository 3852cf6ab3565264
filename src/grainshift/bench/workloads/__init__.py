"""The models that are measured, one file for each kind. Knows no peer and no clock."""
