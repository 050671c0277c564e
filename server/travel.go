package server

func (s *Server) travelRoutes() {}
