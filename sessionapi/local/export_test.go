package local

// For tests of pure functions.
var ResolvConf = resolvConf
