package console

// Bundle is bundle, for the tests.
var Bundle = bundle
