package server

func (s *Server) eventRoutes() {}
