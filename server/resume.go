package server

func (s *Server) resumeRoutes() {}
