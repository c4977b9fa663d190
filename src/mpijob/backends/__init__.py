"""Engines that run jobs, behind one port (`protocol`), and what several of them share."""
