"""The programs that `antifreeze demo` runs: plain torch scripts that know nothing of antifreeze."""
