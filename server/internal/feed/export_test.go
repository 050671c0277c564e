package feed

// ListOf is for tests.
var ListOf = listOf
