"""The promises that every engine keeps, as tests that know no engine."""
