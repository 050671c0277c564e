package server

func (s *Server) runRoutes() {}
