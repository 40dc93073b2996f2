"""The workers of one iterator: their lives, and what arrives from them."""
