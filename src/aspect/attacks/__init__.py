"""Small changes of a graph, made on purpose: a graph in, a perturbed graph out."""
