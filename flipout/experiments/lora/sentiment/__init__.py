"""Human ratings of sentiment, by an encoder with an adapter: trained on tweets, tested on reviews and editorials."""
