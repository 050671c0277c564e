package server

func (s *Server) tokenRoutes() {}
