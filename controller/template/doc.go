// Package template builds images from the steps of gateways' clients, with the engine's own builder. A finished build is an image with labels and a
// name of ours; a record says which builds were started. A build ends with the daemon that runs it.
package template
