"""The world: engines that run jobs, behind one port."""
