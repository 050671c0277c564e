package server

func (s *Server) askRoutes() {}
