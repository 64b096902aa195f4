"""Trained policies as files that other programs run: StableHLO and ONNX.

A lower room does not know of `Policy`; it is given an agent, its state and the spaces.
"""
