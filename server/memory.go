package server

func (s *Server) memoryRoutes() {}
