"""The controller: reconcile loop, leader election, garbage collection."""
