"""The trained network: its arrays, their files, and exchange with torch modules. Public: Network, TrainingHistory."""
