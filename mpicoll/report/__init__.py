"""The report: a page of plots and tables, made from files of results."""
