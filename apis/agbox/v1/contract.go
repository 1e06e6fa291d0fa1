// Package agboxv1 is the public contract of agboxd: messages, services, and the metadata by which a client declares what it knows.
package agboxv1

import (
	"context"
	"errors"
	"io"
	"iter"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// The metadata by which a client declares the contract that it knows. To clients without it, agboxd sends no enum value from
// FirstAddition up, because many older clients fail on a value that they do not know: PAUSED reads as STOPPED, and events of
// newer types are left out of subscriptions.
const (
	ContractKey = "agbox-contract"
	Contract    = "100"
)

// FirstAddition is the smallest field number and enum value that clients of the older contract do not know.
const FirstAddition = 100

// MaxRequestBytes is the size of the largest encoded request that agboxd accepts: the largest valid create, a spec of 1 MiB and a YAML text of 2 MiB,
// fits. It is gRPC's default, on which existing clients rely.
const MaxRequestBytes = 4 << 20

// PieceBytes is the size of the pieces in which clients and daemon send data, in bytes. A message with one fits into a pooled buffer of gRPC of
// 32 KiB; larger ones use buffers of 1 MiB, which gRPC clears for each message.
const PieceBytes = 32<<10 - 256

const (
	// StreamWindow is how much client or daemon may send on a stream that the other side does not read, in bytes. gRPC's own grows to 16 MiB.
	StreamWindow = 512 << 10
	// ConnWindow is what may be on its way on all streams of a connection together, in bytes. It bounds no memory, since it counts data only
	// until it is read from the socket: the windows of the streams do. gRPC's own is 64 KiB, an update for every 16 KiB.
	ConnWindow = 16 << 20
	// IOBuffer is how much one call of the kernel moves, in bytes.
	IOBuffer = 128 << 10
)

// Pieces iterates over what r has in pieces of at most PieceBytes, each valid until the next one. An error of r other than io.EOF ends it.
func Pieces(r io.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		buf := make([]byte, PieceBytes)
		for {
			n, err := r.Read(buf)
			if n > 0 && !yield(buf[:n], nil) || errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// Declare returns conn with the metadata of this package's contract on every call. The connection stays the caller's.
func Declare(conn grpc.ClientConnInterface) grpc.ClientConnInterface { return declared{conn} }

type declared struct{ conn grpc.ClientConnInterface }

func (d declared) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return d.conn.Invoke(metadata.AppendToOutgoingContext(ctx, ContractKey, Contract), method, args, reply, opts...)
}

func (d declared) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return d.conn.NewStream(metadata.AppendToOutgoingContext(ctx, ContractKey, Contract), desc, method, opts...)
}
