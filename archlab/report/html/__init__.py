"""A report as one HTML file that needs no network: `page.py` puts it together, style and script lie beside it."""
