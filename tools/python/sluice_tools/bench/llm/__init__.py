"""`sluice bench llm`: a real LLM server next to training and offline generation."""
