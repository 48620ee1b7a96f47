"""What the paper compares with: an LSTM with attention, and the Neural GPU. (A Transformer is our block, untied.)"""
