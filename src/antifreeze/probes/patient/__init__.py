"""What runs inside the patient."""
