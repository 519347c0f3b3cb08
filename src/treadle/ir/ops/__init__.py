"""Operation classes of TileIR, one file a family. Start at `elementwise`, then `access`, `fold`."""
