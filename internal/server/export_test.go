package server

// LimitStreams replaces the limits of open streams.
func (s *Server) LimitStreams(ofOne, ofAll int64) { s.maxStreams, s.maxAllStreams = ofOne, ofAll }
