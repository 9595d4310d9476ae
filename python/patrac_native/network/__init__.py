"""The trained network: its arrays, activations, files, and exchange with torch modules.

Public: Network, TrainingHistory, the registry ACTIVATIONS.
"""
