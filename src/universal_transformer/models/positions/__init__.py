"""Position encodings beyond the paper's, each a class behind the protocol of `nn.coordinates.PositionEncoder`."""
