"""Parts of the product that tests put in place of the real ones, and builders of their input."""
