package nameproxy

// HelloPatience is the time in which a client has to say which name it wants.
var HelloPatience = &helloPatience
