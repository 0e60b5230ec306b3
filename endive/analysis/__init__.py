"""Statistics on plain arrays and frames: no files, no Spark, no clock. `endive.saturation_analysis` is the way in."""
