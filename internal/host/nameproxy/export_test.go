package nameproxy

// HelloPatience is the time in which a client has to say which name it wants.
var HelloPatience = &helloPatience

// Take takes n bytes as a request does.
func (s *Share) Take(n int64) bool { return s.take(n, usual) }

// Taken returns how much is taken.
func (b *Budget) Taken() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.taken
}
