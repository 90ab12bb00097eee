"""The comparison of files of results: which cells became faster or slower."""
