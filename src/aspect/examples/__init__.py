"""Complete studies on the package's public parts, to be run and to be read: demo and theory."""
