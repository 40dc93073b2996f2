"""Where workers live: processes on this machine, forked from a stem."""
