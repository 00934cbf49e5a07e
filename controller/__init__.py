"""The control plane: owns every truth, decides, audits."""
