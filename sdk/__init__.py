"""What makes the TypeScript SDK: its types from the contract's document, and its JavaScript."""
