"""Proposes when and whom to grow or shrink."""
