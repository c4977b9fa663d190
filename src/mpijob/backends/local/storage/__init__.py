"""Files of local jobs below the home directory."""
