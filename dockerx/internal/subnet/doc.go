// Package subnet hands out the subnets of our networks from one block of IPv4 addresses. It does no I/O except reading
// the host's routing table.
package subnet
