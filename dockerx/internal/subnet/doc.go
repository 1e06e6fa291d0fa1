// Package subnet allocates the networks' subnets from one block of IPv4 addresses. Its only I/O is reading the host's
// routing table.
package subnet
