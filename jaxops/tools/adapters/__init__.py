"""Low-rank adapters (LoRA): finds the products that can have one, adds them, merges them, reads and writes files."""
